// Starts the language server, and colours schemas and queries by the tree-sitter grammars.

import { join } from "node:path";

import * as vscode from "vscode";
import { LanguageClient, type LanguageClientOptions, type ServerOptions } from "vscode-languageclient/node";

import { Highlighter, TOKEN_MODIFIERS, TOKEN_TYPES } from "./highlighting";

const SECTION = "omnigraph";
const GRAMMARS: Readonly<Record<string, string>> = { "omnigraph-schema": "pg", "omnigraph-query": "gq" };

let client: LanguageClient | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  for (const [language, grammar] of Object.entries(GRAMMARS)) {
    const highlighter = await Highlighter.load(join(context.extensionPath, "out", "grammars"), grammar);
    context.subscriptions.push(colour(language, highlighter));
  }
  await startServer();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

function colour(language: string, highlighter: Highlighter): vscode.Disposable {
  const legend = new vscode.SemanticTokensLegend([...TOKEN_TYPES], [...TOKEN_MODIFIERS]);
  const provider: vscode.DocumentSemanticTokensProvider = {
    provideDocumentSemanticTokens(document) {
      const builder = new vscode.SemanticTokensBuilder(legend);
      for (const { line, start, length, type, modifiers } of highlighter.tokens(document.getText())) {
        builder.push(new vscode.Range(line, start, line, start + length), type, [...modifiers]);
      }
      return builder.build();
    },
  };
  return vscode.languages.registerDocumentSemanticTokensProvider({ language }, provider, legend);
}

/** The server also checks the YAML files of clusters, pipelines and policies; it knows them by their contents. */
async function startServer(): Promise<void> {
  const command = vscode.workspace.getConfiguration(SECTION).get<string>("path") || "omnigraph";
  const server: ServerOptions = { command, args: ["lsp"] };
  const options: LanguageClientOptions = {
    documentSelector: [
      ...Object.keys(GRAMMARS).map((language) => ({ language })),
      { scheme: "file", language: "yaml" },
    ],
    synchronize: { configurationSection: SECTION },
  };
  client = new LanguageClient(SECTION, "OmniGraph", server, options);
  try {
    await client.start();
  } catch (error) {
    const remedy = "Install it (pip install 'omnigraph[editor]'), or set omnigraph.path to the command.";
    void vscode.window.showErrorMessage(`'${command} lsp' did not start: ${String(error)}. ${remedy}`);
  }
}
