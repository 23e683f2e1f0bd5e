-- KEYS: dirtyN, totals
-- ARGV: numbers (MessagePack: field, u as 8 bytes, ...)
-- Answers how many were settled.
--
-- Only what is still as it was archived.
local list = cmsgpack.unpack(ARGV[1])
local n, settled = #list / 2, 0
for f = 1, n, 15 do
  local l = f + 14
  if l > n then l = n end
  local fields = {}
  for i = f, l do fields[i - f + 1] = list[2 * i - 1] end
  local values = redis.call('HMGET', KEYS[1], unpack(fields))
  local same, pairs_ = {}, {}
  for i = f, l do
    local value = values[i - f + 1]
    if value and string.sub(value, 1, 8) == list[2 * i] then
      same[#same + 1] = fields[i - f + 1]
      pairs_[#pairs_ + 1] = fields[i - f + 1]
      pairs_[#pairs_ + 1] = value
    end
  end
  if #same > 0 then
    local kept = redis.pcall('HSET', KEYS[2], unpack(pairs_))
    -- Without memory the archive alone keeps it, as if the janitor had come by. An older value must go too.
    if type(kept) ~= 'number' then redis.call('HDEL', KEYS[2], unpack(same)) end
    redis.call('HDEL', KEYS[1], unpack(same))
    settled = settled + #same
  end
end
return settled
