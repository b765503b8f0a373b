-- Rounds to 0.1 as nsys's statistics do: by the exact value of the double (36786.85 is stored a
-- little below and gives 36786.8), true halves (x.25, x.75) away from zero.
CREATE MACRO round_tenth(x) AS
    CASE
        WHEN x * 4 = floor(x * 4) AND x * 2 != floor(x * 2) THEN sign(x) * (floor(abs(x) * 10) + 1) / 10
        ELSE printf('%.1f', x::DOUBLE)::DOUBLE
    END;

-- A kernel name that nsys, .ncu-rep and ncu's CSV pages spell alike: the CSV pages leave out casts
-- of literals, (int)8, and some namespaces, so all of both are left out.
CREATE MACRO kernel_key(name) AS
    regexp_replace(
        regexp_replace(name, '\([A-Za-z_][A-Za-z_0-9: ]*\)(-?[0-9])', '\1', 'g'),
        '([A-Za-z_][A-Za-z_0-9]*|<unnamed>)::', '', 'g'
    );
