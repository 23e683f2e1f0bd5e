-- KEYS: applied, hold, resume, dirtyS, dirtyN, totals
-- ARGV: holder, at, then MessagePack arrays: names of sketches, their contents, names of absent-marks, fields of numbers,
--   numbers
-- Answers 1; 0 if the hold is not the holder's (any more), and nothing was changed.
local call, unpack = redis.call, unpack
local at = ARGV[2]
local stood = call('HGET', KEYS[3], 'offset')
if not stood or call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local names, contents, absent = cmsgpack.unpack(ARGV[3]), cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5])
local fields, numbers = cmsgpack.unpack(ARGV[6]), cmsgpack.unpack(ARGV[7])
-- The first write is one that is refused without memory: then nothing has changed. SET takes the place of anything, and
-- leaves no time to live.
for i = 1, #names do
  call('SET', names[i], contents[i])
  call('HSET', KEYS[4], names[i], ARGV[2])
  call('HSET', KEYS[5], fields[i], numbers[i])
  call('HDEL', KEYS[6], fields[i])
  call('UNLINK', absent[i])
end
-- A zero in front is the same offset and another text: no batch fits, since each says where it stands as text, before a
-- counter has asked anew. What it knew may rest on what was here.
if #names > 0 then
  at = '0' .. at
elseif string.gsub(stood, '^0+(%d)', '%1') == at then
  at = stood
end
if stood ~= at then call('HSET', KEYS[3], 'offset', at) end
call('RENAME', KEYS[3], KEYS[1])
call('UNLINK', KEYS[2])
return 1
