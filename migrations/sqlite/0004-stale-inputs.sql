-- An input that was reported as stale is found by its id, whether the item is still open or not.
CREATE INDEX inbox_stale ON inbox (workflow, json_extract(detail_json, '$.input')) WHERE kind = 'stale_input';
