/**
 * The `.pg` schema language, as src/omnigraph/language/schema/grammar.lark has it.
 *
 * tests/editors holds the two together: what one parses the other parses, to the same tree.
 */

/// <reference types="tree-sitter-cli/dsl" />
// @ts-check

/** @param {RuleOrLiteral} rule */
const commaSeparated = rule => seq(rule, repeat(seq(',', rule)));

module.exports = grammar({
  name: 'omnigraph_pg',

  // A word is a keyword only where the grammar asks for it: a property may be called `node`.
  word: $ => $.identifier,

  extras: $ => [/[ \t\r\n]/, $.comment],

  supertypes: $ => [$.declaration, $.member, $.value],

  // `p: String @unique` goes on with a property, or with the rule `@unique(p)`: the parenthesis decides.
  conflicts: $ => [[$.property]],

  rules: {
    source_file: $ => repeat($.declaration),

    declaration: $ => choice($.interface_declaration, $.node_declaration, $.edge_declaration),

    interface_declaration: $ => seq('interface', field('name', $.type_name), field('body', $.interface_body)),

    node_declaration: $ => seq(
      'node',
      field('name', $.type_name),
      repeat(alias($._head_annotation, $.annotation)),
      optional($.implements),
      field('body', $.body),
    ),

    implements: $ => seq('implements', commaSeparated($.type_name)),

    edge_declaration: $ => seq(
      'edge',
      field('name', $.type_name),
      ':',
      field('source', $.type_name),
      '->',
      field('target', $.type_name),
      optional(seq(
        choice($.cardinality, alias($._annotation_behind_target, $.annotation)),
        repeat(alias($._head_annotation, $.annotation)),
      )),
      optional(field('body', $.body)),
    ),

    cardinality: $ => seq(
      alias('@card', $.rule_name),
      '(',
      field('minimum', $.integer),
      '..',
      optional(field('maximum', $.integer)),
      ')',
    ),

    interface_body: $ => seq('{', repeat($.property), '}'),

    body: $ => seq('{', repeat($.member), '}'),

    member: $ => choice($.property, $.columns_rule, $.range_rule, $.check_rule),

    property: $ => seq(
      field('name', alias($.identifier, $.property_name)),
      ':',
      field('type', $._type),
      optional(seq('=', field('default', $._default))),
      repeat($.annotation),
    ),

    // ---- types ----------------------------------------------------------------------------------------------

    _type: $ => choice($.optional_type, $._core_type),
    optional_type: $ => seq($._core_type, '?'),
    _core_type: $ => choice($._item_core, $.list_type),
    list_type: $ => seq('[', field('item', choice(alias($.optional_item, $.optional_type), $._item_core)), ']'),
    optional_item: $ => seq($._item_core, '?'),
    _item_core: $ => choice($.type_name, $.sized_type, $.enum_type),
    sized_type: $ => seq(field('name', $.type_name), '(', field('size', $.integer), ')'),
    enum_type: $ => seq('enum', '(', commaSeparated($.enum_value), ')'),

    // ---- default values -------------------------------------------------------------------------------------

    _default: $ => choice($._default_value, $.default_list),
    _default_value: $ => choice($.string, $.boolean, alias($.signed_number, $.number), $._default_name),
    _default_name: $ => choice(alias($._default_word, $.enum_value), alias($.identifier, $.enum_value)),
    default_list: $ => seq('[', optional(commaSeparated($._default_value)), ']'),

    // ---- annotations ----------------------------------------------------------------------------------------

    // In a body the name of a rule directly before a parenthesis begins a rule; without one, or before a named argument,
    // it annotates a property.
    annotation: $ => choice(
      seq(field('name', choice($.annotation_name, alias('@card', $.annotation_name))), optional($._arguments)),
      field('name', alias($._rule_word, $.annotation_name)),
      seq(field('name', alias(choice('@key', '@unique', '@index'), $.annotation_name)), $._named_arguments),
    ),

    // A head has no rules but `@card(…)` directly behind the target of an edge.
    _head_annotation: $ => seq(
      field('name', choice($.annotation_name, alias(choice($._rule_word, '@card'), $.annotation_name))),
      optional($._arguments),
    ),
    _annotation_behind_target: $ => choice(
      seq(field('name', choice($.annotation_name, alias($._rule_word, $.annotation_name))), optional($._arguments)),
      field('name', alias('@card', $.annotation_name)),
    ),

    _arguments: $ => choice(
      seq('(', field('value', $.value), repeat(seq(',', $.argument)), ')'),
      $._named_arguments,
    ),
    _named_arguments: $ => seq('(', commaSeparated($.argument), ')'),
    argument: $ => seq(field('name', alias($.identifier, $.argument_name)), '=', field('value', $._literal)),

    value: $ => choice($.string, $.number, $.boolean, alias($.identifier, $.name)),
    _literal: $ => choice($.string, $.number, $.boolean),

    _rule_word: _ => choice('@key', '@unique', '@index', '@range', '@check'),

    columns_rule: $ => seq(
      field('name', alias(choice('@key', '@unique', '@index'), $.rule_name)),
      '(',
      commaSeparated(field('column', choice(alias($.identifier, $.property_name), $.endpoint))),
      ')',
    ),

    range_rule: $ => seq(
      field('name', alias('@range', $.rule_name)),
      '(',
      field('column', alias($.identifier, $.property_name)),
      ',',
      choice(
        seq(field('low', alias($.bound, $.number)), '..', optional(field('high', alias($.bound, $.number)))),
        seq('..', field('high', alias($.bound, $.number))),
      ),
      ')',
    ),

    check_rule: $ => seq(
      field('name', alias('@check', $.rule_name)),
      '(',
      field('column', alias($.identifier, $.property_name)),
      ',',
      field('pattern', $.string),
      ')',
    ),

    // ---- tokens ---------------------------------------------------------------------------------------------

    identifier: _ => /[a-z_][A-Za-z0-9_]*/,
    type_name: _ => /[A-Z][A-Za-z0-9_]*/,
    annotation_name: _ => /@[a-z_][A-Za-z0-9_]*/,
    endpoint: _ => choice('@src', '@dst'),

    integer: _ => /[0-9]+/,
    number: _ => /[0-9]+(\.[0-9]+)?/,
    bound: _ => /-?[0-9]+(\.[0-9]+)?/,
    signed_number: _ => /-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/,
    _default_word: _ => /[A-Za-z0-9_.+-]+/, // behind the numbers: what is both is a number
    enum_value: _ => /[A-Za-z0-9_-]+/,
    boolean: _ => choice('true', 'false'),

    string: $ => seq('"', repeat(choice($._string_content, $.escape_sequence)), token.immediate('"')),
    _string_content: _ => token.immediate(prec(1, /[^"\\]+/)),
    escape_sequence: _ => token.immediate(/\\["\\nrt]/),

    comment: _ => token(choice(/\/\/[^\n]*/, seq('/*', /[^*]*\*+([^/*][^*]*\*+)*/, '/'))),
  },
});
