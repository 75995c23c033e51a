// The tokens of `.gq` whose kind depends on the tokens behind them, by the rules of
// src/omnigraph/language/query/parser.py. Without state: a token is decided by what the parser can take and by the text.

#include "tree_sitter/parser.h"

enum TokenType { EDGE_WORD, EDGE_VARIABLE, ANGLE, FIELD, EACH, ERROR_SENTINEL };

enum { LONGEST_WORD = 12 };  // of those that are compared: `starts_with` and the end of the text

static bool begins_word(int32_t c) { return (c >= 'a' && c <= 'z') || c == '_'; }

static bool is_digit(int32_t c) { return c >= '0' && c <= '9'; }

static bool continues_word(int32_t c) { return begins_word(c) || (c >= 'A' && c <= 'Z') || is_digit(c); }

static bool is_space(int32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void advance(TSLexer *lexer) { lexer->advance(lexer, false); }

static bool is_one_of(const char *word, const char *const *words) {
  for (; *words; words++) {
    const char *a = word, *b = *words;
    while (*a && *a == *b) a++, b++;
    if (*a == *b) return true;
  }
  return false;
}

static const char *const RESERVED[] = {"and", "or", "not", "is", "null", "in", "case", 0};
static const char *const TEXT_OPERATORS[] = {"contains", "starts_with", 0};
static const char *const EACH_WORD[] = {"each", 0};

// Reads a word and keeps its beginning: none of those that are compared is longer.
static void read_word(TSLexer *lexer, char word[LONGEST_WORD]) {
  unsigned length = 0;
  while (continues_word(lexer->lookahead)) {
    if (length < LONGEST_WORD - 1) word[length++] = (char)lexer->lookahead;
    advance(lexer);
  }
  word[length] = 0;
}

static void skip_comment(TSLexer *lexer) {
  if (lexer->lookahead == '/') {
    while (lexer->lookahead != '\n' && !lexer->eof(lexer)) advance(lexer);
    return;
  }
  advance(lexer);
  while (!lexer->eof(lexer)) {
    bool star = lexer->lookahead == '*';
    advance(lexer);
    if (star && lexer->lookahead == '/') break;
  }
  advance(lexer);
}

// The first character of the next token. A `/` that begins no comment has been read already.
static int32_t next_token(TSLexer *lexer) {
  for (;;) {
    while (is_space(lexer->lookahead)) advance(lexer);
    if (lexer->lookahead != '/') return lexer->lookahead;
    advance(lexer);
    if (lexer->lookahead != '/' && lexer->lookahead != '*') return '/';
    skip_comment(lexer);
  }
}

static bool is_variable(TSLexer *lexer) {
  if (lexer->lookahead != '$') return false;
  advance(lexer);
  return begins_word(lexer->lookahead);
}

// Reads the name of an edge, a word or a string.
static bool read_edge(TSLexer *lexer) {
  if (begins_word(lexer->lookahead)) {
    while (continues_word(lexer->lookahead)) advance(lexer);
    return true;
  }
  if (lexer->lookahead != '"') return false;
  advance(lexer);
  while (lexer->lookahead != '"' && !lexer->eof(lexer)) {
    if (lexer->lookahead == '\\') advance(lexer);
    advance(lexer);
  }
  bool closed = lexer->lookahead == '"';
  advance(lexer);
  return closed;
}

// Whether what follows `$a $e` makes `$e` an edge, as in `$a $e:wrote $b`. In `$flag $b: Paper` it is a clause.
static bool selects_edges(TSLexer *lexer) {
  if (next_token(lexer) != ':') return false;
  advance(lexer);
  switch (next_token(lexer)) {
    case '*':
      advance(lexer);
      if (next_token(lexer) != '{') return is_variable(lexer);
      advance(lexer);
      return is_digit(next_token(lexer));
    case '(':
      advance(lexer);
      return begins_word(next_token(lexer)) || lexer->lookahead == '"';
    case '<':
      advance(lexer);
      return lexer->lookahead != '=';
    default:
      return begins_word(lexer->lookahead) || lexer->lookahead == '"';
  }
}

// Whether what follows `<` makes it a bracket, as in `$a <knows> $b`. In `$a < knows` it compares.
static bool opens_angle(TSLexer *lexer) {
  if (next_token(lexer) == '*') {
    advance(lexer);
  } else if (!read_edge(lexer)) {
    return false;
  }
  if (next_token(lexer) == '|') return true;
  if (lexer->lookahead != '>') return false;
  advance(lexer);
  return lexer->lookahead != '=';
}

static bool take(TSLexer *lexer, enum TokenType type) {
  lexer->result_symbol = type;
  return true;
}

static bool scan_word(TSLexer *lexer, const bool *valid) {
  char word[LONGEST_WORD];
  read_word(lexer, word);
  lexer->mark_end(lexer);
  int32_t after = next_token(lexer);
  if (valid[FIELD] && after == ':') return take(lexer, FIELD);
  if (valid[EACH] && is_one_of(word, EACH_WORD) && is_variable(lexer)) return take(lexer, EACH);
  if (!valid[EDGE_WORD] || is_one_of(word, RESERVED)) return false;
  if (is_one_of(word, TEXT_OPERATORS) && after != '{' && !is_variable(lexer)) return false;
  return take(lexer, EDGE_WORD);
}

bool tree_sitter_omnigraph_gq_external_scanner_scan(void *payload, TSLexer *lexer, const bool *valid) {
  (void)payload;
  // While it recovers from an error the parser could take anything, which decides nothing.
  if (valid[ERROR_SENTINEL]) return false;
  while (is_space(lexer->lookahead)) lexer->advance(lexer, true);
  if (lexer->lookahead == '$' && valid[EDGE_VARIABLE]) {
    if (!is_variable(lexer)) return false;
    while (continues_word(lexer->lookahead)) advance(lexer);
    lexer->mark_end(lexer);
    return selects_edges(lexer) && take(lexer, EDGE_VARIABLE);
  }
  if (lexer->lookahead == '<' && valid[ANGLE]) {
    advance(lexer);
    lexer->mark_end(lexer);
    return opens_angle(lexer) && take(lexer, ANGLE);
  }
  return begins_word(lexer->lookahead) && scan_word(lexer, valid);
}

void *tree_sitter_omnigraph_gq_external_scanner_create(void) { return 0; }

void tree_sitter_omnigraph_gq_external_scanner_destroy(void *payload) { (void)payload; }

unsigned tree_sitter_omnigraph_gq_external_scanner_serialize(void *payload, char *buffer) {
  (void)payload;
  (void)buffer;
  return 0;
}

void tree_sitter_omnigraph_gq_external_scanner_deserialize(void *payload, const char *buffer, unsigned length) {
  (void)payload;
  (void)buffer;
  (void)length;
}
