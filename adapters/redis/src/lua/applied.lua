-- KEYS: applied, hold, resume
-- Answers {offset}; {}: it stands nowhere; {nil, 1}: somebody holds it.
--
-- A counter asks this when it knows nothing, or has just forgotten it.
local call = redis.call
if call('HEXISTS', KEYS[1], 'offset') == 0 then
  if call('EXISTS', KEYS[3]) == 0 then return {} end
  if call('EXISTS', KEYS[2]) == 1 then return {false, 1} end
  -- The hold's time is over: the partition stands where it stood.
  call('RENAME', KEYS[3], KEYS[1])
end
local at = call('HGET', KEYS[1], 'offset')
-- Counts were put (see put.lua), and whoever counts on knows them from now on.
local plain = string.gsub(at, '^0+(%d)', '%1')
if plain ~= at then redis.pcall('HSET', KEYS[1], 'offset', plain) end
return {plain}
