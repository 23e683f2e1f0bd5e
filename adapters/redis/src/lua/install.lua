-- KEYS: fapplied, number of staged parts, staged slice - 1, staged slice, slice - 1, slice
-- ARGV: offset, slice, number of parts, stem of the slices' keys
local parts = redis.call('GET', KEYS[2]) or '0'
if parts ~= ARGV[3] then
  return 2
end
-- Somebody was faster, and may have claimed since. But a state below the offset is replaced, too: after a failover to
-- a state that retention has passed nothing else could get on.
local state = redis.call('HMGET', KEYS[1], 'offset', 'slice')
if state[1] and tonumber(state[1]) >= tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
  return 1
end
redis.call('UNLINK', KEYS[2], KEYS[5], KEYS[6])
if state[1] then
  local old = tonumber(state[2])
  redis.call('UNLINK', string.format('%s%.0f', ARGV[4], old - 1), string.format('%s%.0f', ARGV[4], old))
end
for i = 3, 4 do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('RENAME', KEYS[i], KEYS[i + 2])
    -- A renamed key keeps its time to live; the memory may forget by the log's time alone.
    redis.call('PERSIST', KEYS[i + 2])
  end
end
redis.call('HSET', KEYS[1], 'offset', ARGV[1], 'slice', ARGV[2],
  'newer', redis.call('HLEN', KEYS[6]), 'older', redis.call('HLEN', KEYS[5]))
return 0
