-- Which inputs a decision to change something outside goes back to: settled when the decision is made, from the events
-- that its run had reserved. By it one finds what was changed because of an input, and the inputs behind a change.
CREATE TABLE output_causes (
  mutation INTEGER NOT NULL REFERENCES mutations (id),
  input INTEGER NOT NULL REFERENCES inputs (id),
  PRIMARY KEY (mutation, input)
) STRICT, WITHOUT ROWID;
CREATE INDEX output_causes_input ON output_causes (input, mutation);

-- Of the decisions that are there, as far as the journal still tells what their runs had reserved.
INSERT OR IGNORE INTO output_causes (mutation, input)
SELECT m.id, c.input FROM mutations m
JOIN journal j ON j.run = m.origin_run
JOIN json_each(j.entries_json) e ON e.value ->> '$.kind' = 'deliveries.reserved'
JOIN json_each(e.value, '$.ids') reserved
JOIN deliveries d ON d.id = reserved.value
JOIN causes c ON c.event = d.event;
