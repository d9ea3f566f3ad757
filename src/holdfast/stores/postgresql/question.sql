SELECT pg_catalog.pg_backend_pid(),
       pg_catalog.current_setting('server_version_num'),
       pg_catalog.to_regprocedure('"holdfast".version()') IS NOT NULL,
       -- Whoever owns a function, or the triggers of a table, acts with the rights of whoever uses it; and of whoever has logged
       -- in: to have taken on another role is undone by one statement.
       (SELECT pg_catalog.min(role.rolname::pg_catalog.text)
        FROM pg_catalog.pg_namespace at, pg_catalog.pg_roles role, pg_catalog.pg_roles me
        WHERE at.nspname OPERATOR(pg_catalog.=) 'holdfast'
          AND me.rolname OPERATOR(pg_catalog.=) session_user
          AND (pg_catalog.current_setting('is_superuser') OPERATOR(pg_catalog.=) 'on'
               OR EXISTS (SELECT FROM pg_catalog.pg_roles almighty
                          WHERE almighty.rolname OPERATOR(pg_catalog.=) ANY (ARRAY['pg_execute_server_program',
                                'pg_write_server_files', 'pg_read_server_files']::pg_catalog.name[])
                            AND pg_catalog.pg_has_role(me.oid, almighty.oid, 'MEMBER'))) -- a superuser is one of all
          AND NOT role.rolsuper AND role.oid OPERATOR(pg_catalog.<>) me.oid AND (
              role.oid OPERATOR(pg_catalog.=) at.nspowner
              OR EXISTS (SELECT FROM pg_catalog.pg_proc
                         WHERE pronamespace OPERATOR(pg_catalog.=) at.oid
                           AND proowner OPERATOR(pg_catalog.=) role.oid)
              OR EXISTS (SELECT FROM pg_catalog.pg_class
                         WHERE relnamespace OPERATOR(pg_catalog.=) at.oid
                           AND relowner OPERATOR(pg_catalog.=) role.oid)))
