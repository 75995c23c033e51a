[
  (interface_declaration)
  (node_declaration)
  (edge_declaration)
  (comment)
] @fold
