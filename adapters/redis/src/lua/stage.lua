-- KEYS: number of staged parts, the staged slice
-- ARGV: part, claims (MessagePack: field, value, ...), time to live in milliseconds
--
-- A part that is missing or came twice would make a state that is not the log's.
local parts = redis.call('GET', KEYS[1]) or '0'
if parts ~= ARGV[1] then
  return 0
end
local claims = cmsgpack.unpack(ARGV[2])
local n = #claims
for f = 1, n, 30 do
  local l = f + 29
  if l > n then l = n end
  redis.call('HSET', KEYS[2], unpack(claims, f, l))
end
redis.call('SET', KEYS[1], string.format('%.0f', tonumber(parts) + 1), 'PX', ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
