-- KEYS: applied, hold, resume
-- ARGV: holder, for how long in milliseconds
-- Answers {0, where it stands}; {1}: somebody else holds it; {2}: it stands nowhere.
--
-- Without the field `offset` the partition stands nowhere for everybody who changes it. `resume` the hash is what `applied`
-- becomes again when the hold ends, by a RENAME alone: Redis does that without memory, too. `resume` the field is what
-- readers go by meanwhile.
local call = redis.call
local by = call('GET', KEYS[2])
if by and by ~= ARGV[1] then return {1} end
local state = call('HMGET', KEYS[1], 'offset', 'as_of_ms', 'whole_at')
local at = state[1] or call('HGET', KEYS[3], 'offset')
if not at then return {2} end
call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
if state[1] then
  call('HSET', KEYS[3], 'offset', at, 'as_of_ms', state[2], 'whole_at', state[3])
  call('HSET', KEYS[1], 'resume', at)
  call('HDEL', KEYS[1], 'offset')
end
return {0, at}
