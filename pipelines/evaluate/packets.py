"""Messages between the judge, the fork server and candidates: JSON, one packet each."""

#: Longest packet, bytes.
PACKET = 1 << 20

#: Bytes of a word, which is what the judge withholds of an input.
WORD = 4
