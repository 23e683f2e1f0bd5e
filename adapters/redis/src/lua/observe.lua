-- KEYS: applied, changed numbers, archived numbers, marks of changed sketches
-- ARGV: fields of the numbers, names of the sketches (both MessagePack)
-- Answers {applied, changed numbers, archived numbers, marks, contents, times to live in ms}.
--
-- A script for the same reason as in read.lua: it answers while Redis is out of memory, which is when people look.
local fields, names = cmsgpack.unpack(ARGV[1]), cmsgpack.unpack(ARGV[2])
local contents, times = {}, {}
for i, name in ipairs(names) do
  local content = redis.pcall('GET', name)
  -- Another type than a string: as wrong as any bytes that are no sketch.
  if type(content) == 'table' and content.err then content = '' end
  contents[i], times[i] = content, redis.call('PTTL', name)
end
-- While somebody holds the partition, it shows where it stood.
local state = redis.call('HMGET', KEYS[1], 'offset', 'resume')
return {
  state[1] or state[2],
  redis.call('HMGET', KEYS[2], unpack(fields)),
  redis.call('HMGET', KEYS[3], unpack(fields)),
  redis.call('HMGET', KEYS[4], unpack(names)),
  contents,
  times,
}
