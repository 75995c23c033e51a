// Semantic tokens from a tree-sitter grammar and the highlighting query that the other editors use. Without VS Code, so
// that it runs under Node alone.

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { Language, Parser, Query, type QueryCapture } from "web-tree-sitter";

export const TOKEN_TYPES = [
  "comment", "string", "regexp", "number", "keyword", "operator", "type", "enumMember", "function", "method",
  "variable", "parameter", "property", "decorator", "namespace",
] as const;

export const TOKEN_MODIFIERS = ["declaration", "defaultLibrary", "readonly"] as const;

export type TokenType = (typeof TOKEN_TYPES)[number];
export type TokenModifier = (typeof TOKEN_MODIFIERS)[number];

/** A part of one line. Positions and lengths are in UTF-16 units, as an editor counts. */
export interface Token {
  readonly line: number;
  readonly start: number;
  readonly length: number;
  readonly type: TokenType;
  readonly modifiers: readonly TokenModifier[];
}

interface Style {
  readonly type: TokenType;
  readonly modifiers: readonly TokenModifier[];
}

// By the name of a capture, or by the beginning of one: `function.call` is a function. Punctuation has no style.
const STYLES: Readonly<Record<string, readonly [TokenType, ...TokenModifier[]]>> = {
  attribute: ["decorator"],
  boolean: ["keyword"],
  "character.special": ["operator"],
  comment: ["comment"],
  constant: ["enumMember"],
  "constant.builtin": ["keyword"],
  function: ["function"],
  "function.builtin": ["function", "defaultLibrary"],
  "function.method": ["method"],
  keyword: ["keyword"],
  module: ["namespace"],
  number: ["number"],
  operator: ["operator"],
  property: ["property"],
  string: ["string"],
  "string.escape": ["regexp"],
  "string.regexp": ["regexp"],
  type: ["type"],
  "type.builtin": ["type", "defaultLibrary"],
  "type.definition": ["type", "declaration"],
  variable: ["variable"],
  "variable.builtin": ["property", "readonly"],
  "variable.parameter": ["parameter"],
};

function styleOf(capture: string): Style | undefined {
  for (let name = capture; name !== ""; name = name.slice(0, Math.max(0, name.lastIndexOf(".")))) {
    const style = STYLES[name];
    if (style !== undefined) {
      const [type, ...modifiers] = style;
      return { type, modifiers };
    }
  }
  return undefined;
}

/** What gives a character its style last wins: an inner node, and of the captures of one node the later pattern. */
function comparePriority(a: QueryCapture, b: QueryCapture): number {
  const length = (capture: QueryCapture) => capture.node.endIndex - capture.node.startIndex;
  return length(b) - length(a) || a.patternIndex - b.patternIndex;
}

/** The tokens of the texts of one language. */
export class Highlighter {
  private constructor(private readonly parser: Parser, private readonly query: Query) {}

  /** Reads `NAME.wasm` and `NAME.scm` of a folder. */
  static async load(folder: string, name: string): Promise<Highlighter> {
    await Parser.init();
    const [wasm, highlights] = await Promise.all([
      readFile(join(folder, `${name}.wasm`)),
      readFile(join(folder, `${name}.scm`), "utf8"),
    ]);
    const language = await Language.load(wasm);
    const parser = new Parser();
    parser.setLanguage(language);
    return new Highlighter(parser, new Query(language, highlights));
  }

  /** The tokens of a text, in order, none over another and none over the end of a line. */
  tokens(text: string): Token[] {
    const styles = this.paint(text);
    const tokens: Token[] = [];
    let lineStart = 0;
    for (const [line, content] of text.split("\n").entries()) {
      const length = content.endsWith("\r") ? content.length - 1 : content.length;
      tokens.push(...tokensOfLine(styles, line, lineStart, length));
      lineStart += content.length + 1;
    }
    return tokens;
  }

  /** The style of each character. */
  private paint(text: string): (Style | undefined)[] {
    const styles = new Array<Style | undefined>(text.length).fill(undefined);
    const tree = this.parser.parse(text);
    if (tree === null) {
      return styles;
    }
    try {
      for (const { name, node } of this.query.captures(tree.rootNode).sort(comparePriority)) {
        styles.fill(styleOf(name), node.startIndex, node.endIndex);
      }
    } finally {
      tree.delete();
    }
    return styles;
  }
}

function tokensOfLine(styles: readonly (Style | undefined)[], line: number, lineStart: number, length: number): Token[] {
  const tokens: Token[] = [];
  let start = 0;
  while (start < length) {
    const style = styles[lineStart + start];
    let end = start + 1;
    while (end < length && styles[lineStart + end] === style) {
      end += 1;
    }
    if (style !== undefined) {
      tokens.push({ line, start, length: end - start, ...style });
    }
    start = end;
  }
  return tokens;
}
