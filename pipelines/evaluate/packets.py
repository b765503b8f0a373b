"""Messages between the judge, the fork server and candidates: JSON, one packet each."""

#: Longest packet, bytes.
PACKET = 1 << 20
