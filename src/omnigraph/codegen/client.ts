/** An integer of 64 bits: a number up to 2^53 - 1, and beyond that the text of its digits. */
export type Integer64 = number | string;
/** A day: "2031-05-04". */
export type DateText = string;
/** A moment in UTC: "2031-05-04T10:00:00.000Z". */
export type DateTimeText = string;

/** A walk: one node more than edges. */
export interface Path<N, E> {
  length: number;
  nodes: N[];
  edges: E[];
}

export interface CommitReceipt {
  graph_commit_id: string;
  graph_branch: string | null;
  graph_manifest_version: number;
  parent_commit_id: string | null;
  merged_parent_commit_id: string | null;
  actor_id: string | null;
  /** Microseconds since 1970. */
  created_at: number;
}

/** A mutation that ran. `commit` is null when nothing matched. */
export interface MutationReceipt {
  branch: string;
  query_name: string;
  affected_nodes: number;
  affected_edges: number;
  actor_id: string | null;
  commit: CommitReceipt | null;
  /** An earlier request with the same idempotency key wrote it, and this one nothing. */
  replayed?: boolean;
}

/** The body of a response that tells of a failure. It has at most one detail, such as `key_conflict`. */
export interface ErrorOutput {
  error: string;
  code?: string;
  type?: string;
  fields?: { [name: string]: unknown };
  [detail: string]: unknown;
}

/** A request that the server refused or could not fulfil. */
export class GraphError extends globalThis.Error {
  readonly status: number;
  readonly output: ErrorOutput;
  readonly requestId: string | null;

  constructor(status: number, output: ErrorOutput, requestId: string | null) {
    super(output.error);
    this.name = "GraphError";
    this.status = status;
    this.output = output;
    this.requestId = requestId;
  }

  /** The coarse class of the failure, such as `not_found`. */
  get code(): string | undefined {
    return this.output.code;
  }

  /** The exact class of the failure, such as `branch_not_found`. */
  get type(): string | undefined {
    return this.output.type;
  }
}

export interface GraphClientOptions {
  /** The URL of the server: "https://graphs.example.com". */
  url: string;
  /** The id of the graph on it. */
  graph: string;
  /** The bearer token, or a function that gets one for each request. */
  token?: string | (() => string | Promise<string>);
  /** The branch of reads and writes that name none; main by default. */
  branch?: string;
  /** The commit that reads are of, if they name no other state. */
  snapshot?: string;
  /** What sends requests; the `fetch` of the platform by default. */
  fetch?: typeof globalThis.fetch;
}

/** The state that a read is of: a branch, at a version or a moment of it if one is named, or a commit (`snapshot`). */
export interface ReadOptions {
  branch?: string;
  snapshot?: string;
  version?: number;
  /** A moment in ISO 8601 with its time zone. */
  at?: string;
  signal?: AbortSignal;
}

export interface WriteOptions {
  branch?: string;
  /** Write only if this commit is the head of the branch. */
  ifCommit?: string;
  /** A repeat with the same key writes nothing and returns what the first request returned. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

/** A graph behind a server. */
export class GraphClient {
  readonly #options: GraphClientOptions;

  constructor(options: GraphClientOptions) {
    this.#options = options;
  }

  /** The same graph with other options, such as another branch. */
  with(options: Partial<GraphClientOptions>): GraphClient {
    return new GraphClient({ ...this.#options, ...options });
  }

  /** The rows of a read, as the server sends them. */
  async query(query: string, params: object, options: ReadOptions): Promise<any[]> {
    return (await this.#post("query", { query, params, ...this.#point(options) }, options)).rows;
  }

  /** The rows of a stored read. */
  async queryStored(name: string, params: object, options: ReadOptions): Promise<any[]> {
    const body = { params, expect_mutation: false, ...this.#point(options) };
    return (await this.#post(`queries/${encodeURIComponent(name)}`, body, options)).rows;
  }

  /** Run a mutation as one commit. */
  async mutate(query: string, params: object, options: WriteOptions): Promise<MutationReceipt> {
    return this.#post("mutate", { query, params, branch: this.#branch(options) }, options);
  }

  /** Run a stored mutation as one commit. */
  async mutateStored(name: string, params: object, options: WriteOptions): Promise<MutationReceipt> {
    const body = { params, expect_mutation: true, branch: this.#branch(options) };
    return this.#post(`queries/${encodeURIComponent(name)}`, body, options);
  }

  #point({ branch, snapshot, version, at }: ReadOptions): object {
    if (snapshot === undefined && branch === undefined) {
      const chosen = version === undefined && at === undefined ? this.#options.snapshot : undefined;
      return chosen === undefined ? { branch: this.#options.branch, version, at } : { snapshot: chosen };
    }
    return { branch, snapshot, version, at };
  }

  #branch(options: WriteOptions): string | undefined {
    if (options.branch === undefined && this.#options.snapshot !== undefined) {
      throw new globalThis.Error("a client of a snapshot can't write: name a branch");
    }
    return options.branch ?? this.#options.branch;
  }

  async #post(route: string, body: object, options: WriteOptions): Promise<any> {
    const { url, graph, token, fetch = globalThis.fetch } = this.#options;
    const headers: { [name: string]: string } = {
      Accept: "application/json",
      "Content-Type": "application/json",
    };
    if (token !== undefined) {
      headers["Authorization"] = `Bearer ${typeof token === "string" ? token : await token()}`;
    }
    if (options.idempotencyKey !== undefined) {
      headers["Idempotency-Key"] = options.idempotencyKey;
    }
    if (options.ifCommit !== undefined) {
      headers["Omnigraph-If-Graph-Commit"] = options.ifCommit;
      route = `${route}/if-graph-commit`;
    }
    const base = `${url.replace(/\/+$/, "")}/graphs/${encodeURIComponent(graph)}`;
    const request = { method: "POST", headers, body: JSON.stringify(body, refuseNotFinite) };
    const signal = options.signal === undefined ? {} : { signal: options.signal };
    const response = await fetch(`${base}/${route}`, { ...request, ...signal });
    const text = await response.text();
    if (!response.ok) {
      throw new GraphError(response.status, readError(text), response.headers.get("X-Request-Id"));
    }
    return readJson(text);
  }
}

/** JSON has no form for such a number, and would send null. */
function refuseNotFinite(name: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new RangeError(`${name}: ${value} can't be sent`);
  }
  return value;
}

function readError(text: string): ErrorOutput {
  try {
    const output = JSON.parse(text);
    if (typeof output?.error === "string") {
      return output;
    }
  } catch {
    // A proxy, or a server that could not read the request, sends plain text.
  }
  return { error: text.trim() || "the server gave no reason" };
}

/** JSON in which integers that a number can't hold are texts: `JSON.parse` would round them. */
function readJson(text: string): any {
  if (!/[0-9]{16}/.test(text)) {
    return JSON.parse(text);
  }
  const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/g;
  const isWide = (token: string) => /^-?[0-9]+$/.test(token) && !Number.isSafeInteger(Number(token));
  return JSON.parse(text.replace(tokens, (token) => (isWide(token) ? `"${token}"` : token)));
}
