-- E13: the shapes of secrets that GLOB can find, made from sql/schema/secret_rules.json. The rules
-- jwt, url_password and named_secret need more than GLOB: only the functions check those. GLOB
-- cannot measure entropy either, so a plain INSERT also refuses an AWS key id that is one repeated
-- letter.
--
-- shape is a GLOB for a text with one byte put before it. Where label is not null, a match also has
-- a label of at most label_max bytes of that set between head and label_end.
create view outlog_secret_shapes (rule, shape, head, label, label_max, label_end) as
select column1, '*' || column2 || column3 || replace(printf('%0*d', column4, 0), '0', column5) || column6 || '*',
       column3, column7, column8, column9
  from (values
    --= secret_shapes()
);
