-- How large the log is.

-- name: log_bytes()
select page_count * page_size from pragma_page_count(), pragma_page_size()
