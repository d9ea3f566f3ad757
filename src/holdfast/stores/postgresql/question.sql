SELECT pg_catalog.pg_backend_pid(),
       pg_catalog.current_setting('server_version_num'),
       pg_catalog.to_regprocedure('"holdfast".version()') IS NOT NULL,
       -- Whoever owns a function, or the triggers of a table, acts with the rights of whoever uses it.
       CASE WHEN pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on' THEN (
           SELECT pg_catalog.min(role.rolname::pg_catalog.text)
           FROM pg_catalog.pg_namespace at, pg_catalog.pg_roles role
           WHERE at.nspname OPERATOR(pg_catalog.=) 'holdfast' AND NOT role.rolsuper AND (
               role.oid OPERATOR(pg_catalog.=) at.nspowner
               OR EXISTS (SELECT FROM pg_catalog.pg_proc
                          WHERE pronamespace OPERATOR(pg_catalog.=) at.oid
                            AND proowner OPERATOR(pg_catalog.=) role.oid)
               OR EXISTS (SELECT FROM pg_catalog.pg_class
                          WHERE relnamespace OPERATOR(pg_catalog.=) at.oid
                            AND relowner OPERATOR(pg_catalog.=) role.oid))) END
