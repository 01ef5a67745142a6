-- Begins a generation, unless one is being filled.
-- KEYS: generation pointer, pointer of the one being filled, newest number.
-- ARGV: ms until a rebuild that says nothing is given up.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return ''
end
local served = tonumber(redis.call('GET', KEYS[1]) or '1')
local last = tonumber(redis.call('GET', KEYS[3]) or '1')
local number = string.format('%d', math.max(served, last) + 1)
redis.call('SET', KEYS[3], number)
redis.call('SET', KEYS[2], number, 'PX', ARGV[1])
return number
