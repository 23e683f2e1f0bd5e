-- KEYS: applied, dirtyS, dirtyN
-- ARGV: from, to, as of, then MessagePack arrays:
--   names of sketches, those of a single member first; their members, one behind the other;
--   how many members each of the other names has;
--   based (2 + count, T, sketch, blob, member, ..., ...); numbers (field, value, ...)
-- Answers {0}; {1, applied}; {2, positions of absent sketches}; {3, positions of sketches that are no sketches}.
-- Positions count from 1 over names and based, in this order.
--
-- Offsets are compared as text and never calculated with: Lua's numbers are doubles.
local call, pcall, unpack = redis.call, redis.pcall, unpack
local to = ARGV[2]

-- 1. What Redis holds at an offset is a function of the log below it. On top of any other state this batch would skip
-- records, or build on a base that is too old.
local state = call('HMGET', KEYS[1], 'offset', 'as_of_ms')
if state[1] ~= ARGV[1] then
  return {1, state[1]}
end
-- 0: the counter has just begun and does not know it; what is there stays.
local as_of = ARGV[3]
if as_of == '0' then
  as_of = state[2]
end

local names, members, counts = cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5]), cmsgpack.unpack(ARGV[6])
local based, numbers = cmsgpack.unpack(ARGV[7]), cmsgpack.unpack(ARGV[8])
local n, nb, nn = #names, #based, #numbers
local singles = n - #counts

-- 2. Which sketches are absent? One that is created empty instead would lose its members, and one that is marked as
-- changed cannot be absent unless somebody else removed it: then nothing may be built, or the flusher would write it
-- over the good one. Nothing has changed when this answers.
--
-- Calls of up to 32 arguments: Redis keeps that many argument objects from one call to the next.
local missing, corrupt = {2}, {3}
for f = 1, n, 30 do
  local l = f + 29
  if l > n then l = n end
  if call('EXISTS', unpack(names, f, l)) <= l - f then
    for i = f, l do
      if call('EXISTS', names[i]) == 0 then
        local list = call('HEXISTS', KEYS[2], names[i]) == 1 and corrupt or missing
        list[#list + 1] = i
      end
    end
  end
end
-- Sketches with a base. One that is present after all has more members than its base: the base is ignored.
local built, bn = {}, 0
local present = {}
local j = 1
while j <= nb do
  bn = bn + 1
  built[bn] = based[j + 2]
  j = j + 2 + based[j]
end
for f = 1, bn, 30 do
  local l = f + 29
  if l > bn then l = bn end
  if call('EXISTS', unpack(built, f, l)) > 0 then
    for i = f, l do
      present[i] = call('EXISTS', built[i]) == 1
    end
  end
  local marks = call('HMGET', KEYS[2], unpack(built, f, l))
  for i = f, l do
    if marks[i - f + 1] and not present[i] then corrupt[#corrupt + 1] = n + i end
  end
end
-- Whoever asked goes on without such a sketch, and what it leaves out must never become durable. So the mark stays, whatever
-- a flusher that read the sketch before is about to settle: a zero in front is the same offset and another text.
local function spoil(name) call('HSET', KEYS[2], name, '0' .. to) end
if #corrupt > 1 then
  for i = 2, #corrupt do spoil(names[corrupt[i]] or built[corrupt[i] - n]) end
  return corrupt
end
if #missing > 1 then return missing end

-- 3. Sketches. The first write of all is one that is refused without memory (PFADD, SET, HSET): then this script ends
-- before it has changed anything, and once it has begun to write, Redis lets it finish.
local raised, rn = {}, 0
local broken, failure = {3}, nil
local function failed(position, answer)
  local text = answer.err or ''
  if string.find(text, 'WRONGTYPE', 1, true) or string.find(text, 'INVALIDOBJ', 1, true) then
    broken[#broken + 1] = position
  else
    failure = answer
  end
end
-- Lua's stack takes fewer values than one viral sketch may have members.
local function add(name, list, f, last)
  local any = 0
  repeat
    local l = f + 3999
    if l > last then l = last end
    local answer = pcall('PFADD', name, unpack(list, f, l))
    if answer == 1 then
      any = 1
    elseif answer ~= 0 then
      return answer
    end
    f = l + 1
  until f > last
  return any
end
for i = 1, singles do
  local answer = pcall('PFADD', names[i], members[i])
  if answer == 1 then
    rn = rn + 1
    raised[rn] = names[i]
  elseif answer ~= 0 then
    failed(i, answer)
    if failure then break end
  end
end
j = singles + 1
for i = singles + 1, n do
  local count = counts[i - singles]
  if failure then break end
  -- Without members it was only asked for.
  local answer = count == 0 and 0 or add(names[i], members, j, j + count - 1)
  if answer == 1 then
    rn = rn + 1
    raised[rn] = names[i]
  elseif answer ~= 0 then
    failed(i, answer)
  end
  j = j + count
end
local marks, mn = {}, 0
j = 1
local at = 0
while j <= nb and not failure do
  local count = based[j]
  local name = based[j + 2]
  at = at + 1
  local answer = 0
  if present[at] then
    if count > 2 then answer = add(name, based, j + 4, j + 1 + count) end
    if answer == 1 then
      rn = rn + 1
      raised[rn] = name
    end
  else
    if based[j + 3] ~= '' then answer = pcall('SET', name, based[j + 3]) end
    if type(answer) == 'number' or not answer.err then
      answer = 0
      if count > 2 or based[j + 3] == '' then answer = add(name, based, j + 4, j + 1 + count) end
      -- Changed since it was archived, even without a new member: the archive's answer may come from a write that was
      -- never acknowledged. T is not below the base's own, because the base's content is.
      if type(answer) == 'number' then
        marks[mn + 1], marks[mn + 2] = name, based[j + 1]
        mn = mn + 2
      else
        call('UNLINK', name)
      end
    end
  end
  if type(answer) ~= 'number' then failed(n + at, answer) end
  j = j + 2 + count
end

-- What was raised differs from the archive: a mark for the flusher, and no time to live, so that Redis cannot evict it.
-- What had a mark before has no time to live any more; HSET says whether any had none.
for f = 1, rn, 15 do
  local l = f + 14
  if l > rn then l = rn end
  local pairs_ = {}
  for i = f, l do
    local k = 2 * (i - f)
    pairs_[k + 1], pairs_[k + 2] = raised[i], to
  end
  if call('HSET', KEYS[2], unpack(pairs_)) > 0 then
    for i = f, l do call('PERSIST', raised[i]) end
  end
end
for f = 1, mn, 30 do
  local l = f + 29
  if l > mn then l = mn end
  call('HSET', KEYS[2], unpack(marks, f, l))
end

-- Somebody put something else where a sketch was. What was added so far is whole for its sketch and marked as such, so
-- that it is the log's below `to`, as its mark says; the batch stays unapplied. The broken key is marked as well:
-- the flusher then reports nothing of this partition as durable, and the log is kept until it is repaired.
if failure then return failure end
if #broken > 1 then
  for i = 2, #broken do spoil(names[broken[i]] or built[broken[i] - n]) end
  return broken
end

-- 4. Every item with records, even where n did not change: u did.
for f = 1, nn, 30 do
  local l = f + 29
  if l > nn then l = nn end
  call('HSET', KEYS[3], unpack(numbers, f, l))
end

-- 5. An idle batch that changes nothing writes nothing: it only asks whether Redis still stands where it did.
if to ~= ARGV[1] or state[2] ~= as_of then
  call('HSET', KEYS[1], 'offset', to, 'as_of_ms', as_of)
end
return {0}
