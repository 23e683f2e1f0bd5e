-- KEYS: applied, hold, resume
-- Answers {offset}; {}: it stands nowhere; {nil, 1}: somebody holds it.
--
-- A counter asks this when it knows nothing, or has just forgotten it. So whoever holds the partition is told.
local call = redis.call
local at = call('HGET', KEYS[1], 'offset')
if at then return {at} end
if call('EXISTS', KEYS[3]) == 0 then return {} end
if call('EXISTS', KEYS[2]) == 1 then
  redis.pcall('HSET', KEYS[1], 'met', '1')
  return {false, 1}
end
-- The hold's time is over: the partition stands where it stood.
call('RENAME', KEYS[3], KEYS[1])
return {call('HGET', KEYS[1], 'offset')}
