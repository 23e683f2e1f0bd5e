-- KEYS: wanted
-- ARGV: most members, time to live in milliseconds, members (MessagePack)
--
-- Bounded, or a reader that is asked for made-up ids could fill the memory; whoever is turned away asks again.
local wishes = cmsgpack.unpack(ARGV[3])
local room = tonumber(ARGV[1]) - redis.call('SCARD', KEYS[1])
local n = math.min(#wishes, room)
for f = 1, n, 30 do
  local l = f + 29
  if l > n then l = n end
  redis.call('SADD', KEYS[1], unpack(wishes, f, l))
end
if n > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return n
