-- Begins a generation. One that another rebuild was filling is fenced by the number.
-- KEYS: generation pointer, pointer of the one being filled, newest number.
local served = tonumber(redis.call('GET', KEYS[1]) or '1')
local last = tonumber(redis.call('GET', KEYS[3]) or '1')
local number = string.format('%d', math.max(served, last) + 1)
redis.call('SET', KEYS[3], number)
redis.call('SET', KEYS[2], number)
return number
