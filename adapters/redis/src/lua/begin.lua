-- KEYS: applied, dirtyS, dirtyN
--
-- One moment and no cursor: a loss between two pages could hide an item, and what is durable would be too high.
-- A script and no transaction: see read.lua.
return {redis.call('HGET', KEYS[1], 'offset'), redis.call('HKEYS', KEYS[2]), redis.call('HKEYS', KEYS[3])}
