-- KEYS: fapplied, the current slice
-- ARGV: from, to, slice, claims (MessagePack: field, value, ...), stem of the slices' keys, first and last slice to drop
--
-- Only on top of exactly the state that the verdicts were made on: otherwise a claim would stand for a verdict that
-- somebody else decided differently.
local state = redis.call('HMGET', KEYS[1], 'offset', 'slice', 'newer', 'older')
if state[1] ~= ARGV[1] then
  return {1, state[1], state[2]}
end
-- And only where all of it is there: a slice that lost claims, to a hand or to an evicting policy, lets views count twice.
local before = tonumber(state[2])
local function claims_in(slice) return redis.call('HLEN', string.format('%s%.0f', ARGV[5], slice)) end
if claims_in(before) ~= tonumber(state[3]) or claims_in(before - 1) ~= tonumber(state[4]) then
  redis.call('UNLINK', KEYS[1])
  return {1, false, false}
end
-- Claims first: without memory the very first write is refused, and nothing has changed.
-- Fifteen pairs a call: up to 32 arguments, Redis keeps the argument objects instead of allocating them anew.
local claims = cmsgpack.unpack(ARGV[4])
local n = #claims
for f = 1, n, 30 do
  local l = f + 29
  if l > n then l = n end
  redis.call('HSET', KEYS[2], unpack(claims, f, l))
end
local now = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'offset', ARGV[2], 'slice', ARGV[3], 'newer', claims_in(now), 'older', claims_in(now - 1))
-- Nothing exists below the slice before the last one, however low the caller begins.
local first, last = tonumber(ARGV[6]), tonumber(ARGV[7])
local oldest = before - 1
if first < oldest then first = oldest end
for slice = first, last do
  redis.call('UNLINK', string.format('%s%.0f', ARGV[5], slice))
end
return {0}
