-- Whether a command is a launcher, which starts another program.
CREATE MACRO is_launcher(command) AS regexp_matches(
    command, '^(\S*/)?(torchrun|mpirun|mpiexec|srun|accelerate|deepspeed|env|timeout|sh|bash)(\s|$)'
);

-- File name of the program that a command starts; /usr/bin/python3.12 and python3 both give python.  NULL for
-- launchers.
CREATE MACRO program_name(command) AS
    CASE
        WHEN NOT is_launcher(command)
            THEN nullif(regexp_replace(
                regexp_replace(regexp_extract(command, '^\S+'), '^.*/', ''),
                '^(python|pypy)[0-9.]*$',
                '\1'
            ), '')
    END;

-- File name of the script that a Python command runs; NULL if there is none (-m, -c), or if it is unknown.
CREATE MACRO script_name(command) AS
    CASE WHEN NOT is_launcher(_script_path(command)) THEN
        nullif(regexp_replace(_script_path(command), '^.*/', ''), '')
    END;
CREATE MACRO _script_path(command) AS regexp_extract(
    command,
    '^(?:\S*/)?(?:python|pypy)[0-9.]*(?:\s+-[bBdEiIOPqRsSuvx]+|\s+-[XW]\s*\S+)*\s+([^\s-]\S*)',
    1
);
