-- Rounds to 0.1 as SQLite does, on which nsys's statistics rest: by the exact value of the double
-- (36786.85 is stored a little below and gives 36786.8), true halves (x.25, x.75) away from zero.
CREATE MACRO round_tenth(x) AS
    CASE
        WHEN x * 4 = floor(x * 4) AND x * 2 != floor(x * 2) THEN sign(x) * (floor(abs(x) * 10) + 1) / 10
        ELSE printf('%.1f', x::DOUBLE)::DOUBLE
    END;
