-- name: lookup_try(query) @postgres
select count(*) from outlog.look_up(:query, '{"payload":{}}')
