; Where several patterns match, the last one wins.

(comment) @comment

; ---- literals

(string) @string
(escape_sequence) @string.escape
(integer) @number
(float) @number.float
(boolean) @boolean
(null) @constant.builtin

; ---- names

(query_name) @function
(variable) @variable
(parameter name: (variable) @variable.parameter)
(name) @variable
(type_name) @type
(property_name) @property
(edge_name) @function.method
(selector (string) @function.method)
(column_name) @variable
(projection alias: (string) @variable)
(branch_name) @module
(argument_name) @variable.parameter
(meta_field) @variable.builtin
(metadata_name) @attribute
(any) @character.special

((type_name) @type.builtin
  (#any-of? @type.builtin
    "String" "Bool" "I32" "I64" "U32" "U64" "F32" "F64" "Date" "DateTime" "Vector" "Blob"))

; ---- calls

(call function: (function_name) @function.call)
(list_form function: (function_name) @function.builtin)
(reduce function: (function_name) @function.builtin)
(text_call function: (function_name) @function.builtin)
(nearest function: (function_name) @function.builtin)
(bm25 function: (function_name) @function.builtin)
(rrf function: (function_name) @function.builtin)
(exists function: (function_name) @keyword)
(aggregate function: (function_name) @function.builtin)
(aggregate_block function: (function_name) @function.builtin)

; ---- words

[
  "query" "match" "return" "order" "limit" "offset" "unwind" "then" "union" "all" "as" "optional" "path" "each"
  "distinct" "nulls" "where" "insert" "new" "upsert" "update" "set" "delete" "branch" "create" "merge" "list" "from"
  "into" "explain"
] @keyword

(direction) @keyword
(nulls) @keyword
(path_mode) @keyword

["case" "when" "else" "end"] @keyword.conditional
(case_branch "then" @keyword.conditional)

["and" "or" "not" "in" "is" "contains" "starts_with"] @keyword.operator

; A word that is a name here is not a keyword.
(name ["optional" "path" "all" "distinct"] @variable)

; ---- signs

["=" "!=" "<" "<=" ">" ">=" "+" "-" "*" "/" "%" "|" "?"] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
(selector ["<" ">"] @punctuation.bracket)
["," ":" ";" "."] @punctuation.delimiter
