-- KEYS: number of staged parts, the staged slice, the staged slices before and after it
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
  -- What earlier parts staged for a key stays in front, so that nobody has to hold a whole slice to stage it.
  local fields = {}
  for at = f, l, 2 do
    fields[#fields + 1] = claims[at]
  end
  local staged = redis.call('HMGET', KEYS[2], unpack(fields))
  for i = 1, #fields do
    if staged[i] then
      local at = f + 2 * i - 1
      claims[at] = staged[i] .. claims[at]
    end
  end
  redis.call('HSET', KEYS[2], unpack(claims, f, l))
end
redis.call('SET', KEYS[1], string.format('%.0f', tonumber(parts) + 1), 'PX', ARGV[3])
-- All of it expires at the same moment: else a slice that got its parts early would be gone while the number of parts
-- still says that all is there, and half a memory would be put in place.
for i = 2, 4 do redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
return 1
