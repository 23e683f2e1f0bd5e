-- KEYS: applied, resume
-- ARGV: durable, whole at
-- Answers where it stands; nil if somebody holds it.
--
-- Only where there is nothing: a late call would otherwise make Redis jump over records.
local at = redis.call('HGET', KEYS[1], 'offset')
if at then return at end
if redis.call('EXISTS', KEYS[2]) == 1 then return false end
redis.call('HSET', KEYS[1], 'offset', ARGV[1], 'as_of_ms', '0', 'whole_at', ARGV[2])
return ARGV[1]
