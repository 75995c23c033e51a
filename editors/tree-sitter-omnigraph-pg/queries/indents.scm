[
  (interface_body)
  (body)
  (enum_type)
] @indent.begin

["}" ")"] @indent.branch @indent.end
