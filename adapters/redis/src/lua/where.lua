-- KEYS: fapplied
-- ARGV: stem of the slices' keys
-- Answers {offset, slice}, or {} if the memory is gone, or a part of it is: then what is left is forgotten, for a memory
-- with a hole lets views count twice.
local state = redis.call('HMGET', KEYS[1], 'offset', 'slice', 'newer', 'older')
if not state[1] then return {} end
local slice = tonumber(state[2])
local newer = redis.call('HLEN', string.format('%s%.0f', ARGV[1], slice))
local older = redis.call('HLEN', string.format('%s%.0f', ARGV[1], slice - 1))
if newer == tonumber(state[3]) and older == tonumber(state[4]) then
  return {state[1], state[2]}
end
redis.call('UNLINK', KEYS[1])
return {}
