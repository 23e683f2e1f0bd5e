-- KEYS: applied, hash of marks or numbers
-- ARGV: names (MessagePack), 1 if their contents are wanted too
-- Answers {applied, fields of the hash, contents}.
--
-- A script and no transaction: Redis refuses every command of a transaction while it is out of memory, even one that
-- reads. Archiving is what makes room then, so that must go on.
local names = cmsgpack.unpack(ARGV[1])
local answer = {redis.call('HGET', KEYS[1], 'offset'), redis.call('HMGET', KEYS[2], unpack(names))}
if ARGV[2] == '1' then answer[3] = redis.call('MGET', unpack(names)) end
return answer
