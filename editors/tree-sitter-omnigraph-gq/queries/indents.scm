[
  (query)
  (match)
  (return)
  (order)
  (optional)
  (negation)
  (exists)
  (aggregate_block)
  (each)
  (case)
  (enclosed_read)
  (insert)
  (update)
  (update_variable)
  (parameters)
  (list)
] @indent.begin

["}" ")" "]" "end"] @indent.branch @indent.end
