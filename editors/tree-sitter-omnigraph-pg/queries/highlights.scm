; Where several patterns match, the last one wins.

(type_name) @type

((type_name) @type.builtin
  (#any-of? @type.builtin
    "String" "Bool" "I32" "I64" "U32" "U64" "F32" "F64" "Date" "DateTime" "Vector" "Blob"))

(interface_declaration name: (type_name) @type.definition)
(node_declaration name: (type_name) @type.definition)
(edge_declaration name: (type_name) @type.definition)

(property_name) @property
(endpoint) @variable.builtin
(annotation_name) @attribute
(rule_name) @attribute
(argument_name) @variable.parameter
(name) @variable
(enum_value) @constant

(string) @string
(escape_sequence) @string.escape
(check_rule pattern: (string) @string.regexp)
(integer) @number
(number) @number
(boolean) @boolean
(comment) @comment

["interface" "node" "edge" "implements"] @keyword
"enum" @type.builtin

["->" ".." "=" "?"] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," ":"] @punctuation.delimiter
