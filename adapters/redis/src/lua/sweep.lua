-- KEYS: totals
-- ARGV: changed before (seconds), fields (MessagePack)
-- Answers how many were removed. The age is looked at again: a field may have been settled anew since it was seen.
local fields = cmsgpack.unpack(ARGV[2])
local before, n, removed = tonumber(ARGV[1]), #fields, 0
for f = 1, n, 30 do
  local l = f + 29
  if l > n then l = n end
  local values = redis.call('HMGET', KEYS[1], unpack(fields, f, l))
  local old = {}
  for i = f, l do
    local value = values[i - f + 1]
    if value and struct.unpack('<I4', value, 17) < before then old[#old + 1] = fields[i] end
  end
  if #old > 0 then removed = removed + redis.call('HDEL', KEYS[1], unpack(old)) end
end
return removed
