-- KEYS: dirtyS
-- ARGV: time to live in milliseconds, sketches (MessagePack: key, T, ...)
-- Answers how many were settled.
--
-- Only what is still as it was archived: something that changed meanwhile would lose its mark, then its memory.
local list = cmsgpack.unpack(ARGV[2])
local n, settled = #list / 2, 0
for f = 1, n, 30 do
  local l = f + 29
  if l > n then l = n end
  local names = {}
  for i = f, l do names[i - f + 1] = list[2 * i - 1] end
  local marks = redis.call('HMGET', KEYS[1], unpack(names))
  local same = {}
  for i = f, l do
    if marks[i - f + 1] == list[2 * i] then same[#same + 1] = names[i - f + 1] end
  end
  if #same > 0 then
    redis.call('HDEL', KEYS[1], unpack(same))
    for i = 1, #same do redis.call('PEXPIRE', same[i], ARGV[1]) end
    settled = settled + #same
  end
end
return settled
