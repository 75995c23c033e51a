/**
 * The `.gq` query language, as src/omnigraph/language/query/grammar.lark and parser.py have it.
 *
 * tests/editors holds the two together: what one parses the other parses, to the same tree. Where the kind of a token
 * depends on the tokens behind it, src/scanner.c decides, by the rules of parser.py.
 */

/// <reference types="tree-sitter-cli/dsl" />
// @ts-check

/** @param {RuleOrLiteral} rule */
const commaSeparated = rule => seq(rule, repeat(seq(',', rule)));

const LIST_FUNCTION = choice('map', 'any', 'all', 'none', 'single');
const TEXT_FUNCTION = choice('search', 'match_text');
const AGGREGATE_FUNCTION = choice(
  'sum', 'avg', 'min', 'max', 'collect', 'stdev', 'stdevp', 'percentile_cont', 'percentile_disc',
);

// Binary operators, loosest first. Comparisons have no number: they do not chain, so their operands are sums.
const OR = 1;
const AND = 2;
const SUM = 3;
const TERM = 4;
const SIGN = 5;

// What goes on does go on: `count {` is one expression and not two, `$a * $b` is a traversal.
const LONGEST = 10;

module.exports = grammar({
  name: 'omnigraph_gq',

  // A word is a keyword only where the grammar asks for it.
  word: $ => $.identifier,

  // These words name something only where nothing but a name may be: behind a dot, before a colon, behind `query`.
  reserved: {
    global: _ => ['and', 'or', 'not', 'is', 'null', 'in', 'case'],
    none: _ => [],
  },

  extras: $ => [/[ \t\r\n]/, $.comment],

  externals: $ => [
    $._edge_word, // the name of an edge behind the variable that begins a clause
    $._edge_variable, // `$e` in `$a $e:wrote $b`
    $._angle, // `<` in `$a <knows> $b`
    $._field, // a name before a colon
    $._each, // `each` before a variable
    $._error_sentinel,
  ],

  supertypes: $ => [$.clause, $.expression, $.statement],

  inline: $ => [$._plain_write, $._row_write],

  rules: {
    source_file: $ => choice(repeat($.query), seq($.statement, optional(';'))),

    query: $ => seq(
      'query',
      field('name', alias(reserved('none', $.identifier), $.query_name)),
      field('parameters', $.parameters),
      repeat($.metadata),
      '{',
      field('body', choice($.read, $.writes)),
      '}',
    ),

    parameters: $ => seq('(', optional(commaSeparated($.parameter)), ')'),
    parameter: $ => seq(field('name', $.variable), ':', field('type', $._type), optional('?')),
    _type: $ => choice($.type_name, $.list_type, $.sized_type),
    list_type: $ => seq('[', field('item', $.type_name), ']'),
    sized_type: $ => seq(field('name', $.type_name), '(', field('size', $.integer), ')'),

    metadata: $ => seq(field('name', alias(choice('@description', '@instruction'), $.metadata_name)), '(', field('text', $.string), ')'),

    // ---- statements: the whole of a text ----------------------------------------------------------------------

    statement: $ => choice($.branch_create, $.branch_delete, $.branch_merge, $.branch_list, $.explain),
    branch_create: $ => seq('branch', 'create', field('name', $._branch), optional(seq('from', field('source', $._branch)))),
    branch_delete: $ => seq('branch', 'delete', field('name', $._branch)),
    branch_merge: $ => seq('branch', 'merge', field('source', $._branch), optional(seq('into', field('target', $._branch)))),
    branch_list: _ => seq('branch', 'list'),
    explain: $ => seq('explain', $.query),
    _branch: $ => choice(alias($.identifier, $.branch_name), alias($.type_name, $.branch_name), $.string),

    // ---- reads ------------------------------------------------------------------------------------------------

    read: $ => seq($.chain, repeat(seq($.union, $.chain))),
    union: _ => seq('union', optional('all')),
    chain: $ => $._stages,
    _stages: $ => choice($.stage, $.enclosed_read, seq($._stages, 'then', $.stage)),
    enclosed_read: $ => seq('{', $.read, '}'),

    stage: $ => seq(
      repeat($.unwind),
      optional($.match),
      $.return,
      optional($.order),
      optional(choice(seq($.limit, optional($.offset)), seq($.offset, optional($.limit)))),
    ),
    unwind: $ => seq('unwind', field('items', $.expression), 'as', field('variable', $.variable)),
    match: $ => seq('match', $._block),
    return: $ => seq('return', optional('distinct'), '{', repeat1($.projection), '}'),
    projection: $ => seq(
      field('value', $.expression),
      optional(seq('as', field('alias', choice(alias($.identifier, $.column_name), $.string)))),
      optional(','),
    ),
    order: $ => seq('order', '{', commaSeparated($.sort_key), '}'),
    sort_key: $ => seq(
      field('value', $.expression),
      optional(field('direction', alias(choice('asc', 'desc'), $.direction))),
      optional(seq('nulls', field('nulls', alias(choice('first', 'last'), $.nulls)))),
    ),
    limit: $ => seq('limit', choice($.integer, $.variable)),
    offset: $ => seq('offset', choice($.integer, $.variable)),

    // ---- clauses ----------------------------------------------------------------------------------------------

    _block: $ => seq('{', repeat1($.clause), '}'),

    clause: $ => choice($.filter, $.binding, $.traversal, $.path, $.optional),
    filter: $ => $.expression,
    optional: $ => seq('optional', $._block),

    binding: $ => seq(
      field('variable', $.variable),
      ':',
      field('type', choice($.type_name, $.type_set, alias('*', $.any))),
      optional(seq('{', commaSeparated($.pin), optional(','), '}')),
    ),
    type_set: $ => seq('(', $.type_name, repeat1(seq('|', $.type_name)), ')'),
    pin: $ => seq(field('property', alias(reserved('none', $.identifier), $.property_name)), ':', field('value', $.expression)),

    traversal: $ => prec(LONGEST, seq(
      field('source', $.variable),
      choice(
        field('edges', alias($._first_selector, $.selector)),
        seq(field('variable', alias($._edge_variable, $.variable)), ':', field('edges', $.selector)),
      ),
      $._arrival,
    )),
    path: $ => prec(LONGEST, seq(
      'path',
      field('variable', $.variable),
      ':',
      field('mode', alias(choice('shortest', 'all_shortest', 'trails'), $.path_mode)),
      field('source', $.variable),
      field('edges', $.selector),
      $._arrival,
    )),
    _arrival: $ => seq(optional($.hops), field('destination', $.variable), optional($.each)),
    selector: $ => choice($._edge, $._selection),
    _first_selector: $ => choice(alias($._edge_word, $.edge_name), $.string, $._selection),
    _selection: $ => choice(
      alias('*', $.any),
      seq('(', $._edge, repeat1(seq('|', $._edge)), ')'),
      seq(alias($._angle, '<'), choice(alias('*', $.any), seq($._edge, repeat(seq('|', $._edge)))), '>'),
    ),
    _edge: $ => choice(alias($.identifier, $.edge_name), $.string),
    hops: $ => seq('{', field('minimum', $.integer), ',', optional(field('maximum', $.integer)), '}'),
    each: $ => seq(alias($._each, 'each'), field('edge', $.variable), field('node', $.variable), $._block),

    // ---- expressions ------------------------------------------------------------------------------------------

    expression: $ => choice($.or, $.and, $._test),
    _test: $ => choice($.not, $.negation, $.comparison, $.in, $.is_null, $._sum),
    _conjunction: $ => choice($.and, $._test),

    or: $ => prec.left(OR, seq(field('left', $.expression), 'or', field('right', $._conjunction))),
    and: $ => prec.left(AND, seq(field('left', $._conjunction), 'and', field('right', $._test))),
    not: $ => seq('not', field('operand', $._test)),
    negation: $ => prec(LONGEST, seq('not', $._block)),

    comparison: $ => seq(
      field('left', $._sum),
      field('operator', choice('=', '!=', '<', '<=', '>', '>=', 'contains', 'starts_with')),
      field('right', $._sum),
    ),
    in: $ => seq(field('item', $._sum), 'in', field('items', $._sum)),
    is_null: $ => seq(field('operand', $._sum), 'is', optional('not'), $.null),

    _sum: $ => choice($.arithmetic, $.negative, $._operand),
    arithmetic: $ => choice(
      prec.left(SUM, seq(field('left', $._sum), field('operator', choice('+', '-')), field('right', $._sum))),
      prec.left(TERM, seq(field('left', $._sum), field('operator', choice('*', '/', '%')), field('right', $._sum))),
    ),
    negative: $ => prec(SIGN, seq('-', field('operand', choice($.negative, $._operand)))),

    _operand: $ => choice(
      $.variable,
      $.property_access,
      $.meta_access,
      $.name,
      $.string,
      $.integer,
      $.float,
      $.boolean,
      $.null,
      $.list,
      $.parentheses,
      $.case,
      $.call,
      $.list_form,
      $.reduce,
      $.text_call,
      $.nearest,
      $.bm25,
      $.rrf,
      $.exists,
      $.aggregate_block,
      $.aggregate,
    ),

    property_access: $ => prec(LONGEST, seq(
      field('variable', $.variable),
      '.',
      field('property', alias(reserved('none', $.identifier), $.property_name)),
      optional('?'),
    )),
    meta_access: $ => choice(
      prec(LONGEST, seq(field('variable', $.variable), '.', field('field', $.meta_field), optional('?'))),
      field('field', $.meta_field),
      // `@idx` is one token that nothing takes, and not `@id` before a name `x`.
      seq(optional(seq($.variable, '.')), $._unknown_field, $._error_sentinel),
    ),

    // A bare name: a column or a property of the row. Also a word that is a keyword only before `(`, `{` or a variable.
    name: $ => choice(
      $.identifier,
      LIST_FUNCTION,
      'reduce',
      'nearest',
      'bm25',
      'rrf',
      'fuzzy',
      TEXT_FUNCTION,
      'count',
      AGGREGATE_FUNCTION,
      'exists',
      'optional',
      'path',
    ),

    list: $ => prec(LONGEST, seq('[', optional(commaSeparated($.expression)), ']')),
    parentheses: $ => prec(LONGEST, seq('(', $.expression, ')')),

    case: $ => seq(
      'case',
      optional(field('operand', $.expression)),
      repeat1($.case_branch),
      optional(seq('else', field('otherwise', $.expression))),
      'end',
    ),
    case_branch: $ => seq('when', field('test', $.expression), 'then', field('value', $.expression)),

    call: $ => prec(LONGEST, seq(
      field('function', alias(choice($.identifier, 'exists', 'optional', 'path'), $.function_name)),
      '(',
      optional(commaSeparated(choice($.expression, $.named_argument))),
      ')',
    )),
    named_argument: $ => seq(field('name', alias($._field, $.argument_name)), ':', field('value', $.expression)),

    list_form: $ => prec(LONGEST, seq(
      field('function', alias(LIST_FUNCTION, $.function_name)),
      '(',
      field('variable', $.variable),
      'in',
      field('items', $.expression),
      optional(seq('where', field('condition', $.expression))),
      ':',
      field('body', $.expression),
      ')',
    )),
    reduce: $ => prec(LONGEST, seq(
      field('function', alias('reduce', $.function_name)),
      '(',
      field('accumulator', $.variable),
      '=',
      field('initial', $.expression),
      ',',
      field('variable', $.variable),
      'in',
      field('items', $.expression),
      ':',
      field('body', $.expression),
      ')',
    )),

    text_call: $ => prec(LONGEST, choice(
      seq(
        field('function', alias(TEXT_FUNCTION, $.function_name)),
        '(',
        field('field', $.expression),
        ',',
        field('query', $.expression),
        ')',
      ),
      seq(
        field('function', alias('fuzzy', $.function_name)),
        '(',
        field('field', $.expression),
        ',',
        field('query', $.expression),
        optional(seq(',', field('max_edits', $.expression))),
        ')',
      ),
    )),
    nearest: $ => prec(LONGEST, seq(
      field('function', alias('nearest', $.function_name)),
      '(',
      field('target', alias($._target, $.property_access)),
      ',',
      field('query', $.expression),
      optional(seq(',', field('option', alias($._field, $.argument_name)), ':', field('exact', $.boolean))),
      ')',
    )),
    _target: $ => seq(
      field('variable', $.variable),
      '.',
      field('property', alias(reserved('none', $.identifier), $.property_name)),
    ),
    bm25: $ => prec(LONGEST, seq(
      field('function', alias('bm25', $.function_name)),
      '(',
      field('field', $.expression),
      ',',
      field('query', $.expression),
      ')',
    )),
    rrf: $ => prec(LONGEST, seq(
      field('function', alias('rrf', $.function_name)),
      '(',
      field('first', choice($.nearest, $.bm25)),
      ',',
      field('second', choice($.nearest, $.bm25)),
      optional(seq(',', field('k', $.expression))),
      ')',
    )),

    exists: $ => prec(LONGEST, seq(field('function', alias('exists', $.function_name)), $._block)),
    aggregate: $ => choice(
      seq(field('function', alias('count', $.function_name)), '(', alias('*', $.any), ')'),
      $._argument_aggregate,
    ),
    _argument_aggregate: $ => prec(LONGEST, seq(
      field('function', alias(choice('count', AGGREGATE_FUNCTION), $.function_name)),
      '(',
      choice(
        seq(optional('distinct'), field('argument', $.expression)),
        field('argument', alias('distinct', $.name)),
      ),
      optional(seq(',', field('fraction', $.expression))),
      ')',
    )),
    aggregate_block: $ => prec(LONGEST, choice(
      seq(field('function', alias('count', $.function_name)), $._block),
      seq(field('aggregate', alias($._argument_aggregate, $.aggregate)), $._block),
    )),

    // ---- writes -----------------------------------------------------------------------------------------------

    writes: $ => choice(repeat1($._plain_write), seq(repeat($._plain_write), repeat1($.for_each_row))),
    _plain_write: $ => choice($.insert, $.update, $.delete),
    _row_write: $ => choice($.insert, $.update, $.delete, $.update_variable, $.delete_variable),
    for_each_row: $ => prec.right(seq($.feed, repeat1($._row_write))),
    feed: $ => choice(
      seq(optional(seq($._stages, 'then')), choice(seq(repeat1($.unwind), optional($.match)), $.match)),
      seq($._stages, 'then'),
    ),

    insert: $ => seq(
      choice(seq('insert', optional('new')), 'upsert'),
      field('type', $.type_name),
      $._assignments,
    ),
    update: $ => seq(
      'update',
      field('type', $.type_name),
      'set',
      $._assignments,
      'where',
      field('condition', $.expression),
    ),
    delete: $ => seq('delete', field('type', $.type_name), 'where', field('condition', $.expression)),
    update_variable: $ => seq('update', field('variable', $.variable), 'set', $._assignments),
    delete_variable: $ => seq('delete', field('variable', $.variable)),
    _assignments: $ => seq('{', repeat1($.assignment), '}'),
    assignment: $ => seq(
      field('property', alias($._field, $.property_name)),
      ':',
      field('value', $.expression),
      optional(','),
    ),

    // ---- tokens -----------------------------------------------------------------------------------------------

    identifier: _ => /[a-z_][A-Za-z0-9_]*/,
    type_name: _ => /[A-Z][A-Za-z0-9_]*/,
    variable: _ => /\$[a-z_][A-Za-z0-9_]*/,
    meta_field: _ => token(choice('@id', '@src', '@dst', '@type')),
    _unknown_field: _ => /@[A-Za-z0-9_]+/,

    integer: _ => /[0-9]+/,
    float: _ => /[0-9]+\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/,
    boolean: _ => choice('true', 'false'),
    null: _ => 'null',

    string: $ => seq('"', repeat(choice($._string_content, $.escape_sequence)), token.immediate('"')),
    _string_content: _ => token.immediate(prec(1, /[^"\\]+/)),
    escape_sequence: _ => token.immediate(/\\["\\nrt]/),

    comment: _ => token(choice(/\/\/[^\n]*/, seq('/*', /[^*]*\*+([^/*][^*]*\*+)*/, '/'))),
  },
});
