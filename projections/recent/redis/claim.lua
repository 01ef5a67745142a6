-- Takes a partition over. The first claim also names the checkpoint's birth: what was
-- written under another birth does not count. Epochs count from there, so that a Redis
-- that was emptied gives none a second time, and a runner of before is fenced.
-- KEYS: generation pointer. ARGV: root, partition.
local generation = redis.call('GET', KEYS[1]) or '1'
local cp = ARGV[1] .. generation .. ':cp:' .. ARGV[2]
if redis.call('EXISTS', cp) == 0 then
  local t = redis.call('TIME')
  redis.call('HSET', cp, 'seq', '0', 'created', '', 'id', '', 'birth', t[1] .. '.' .. t[2], 'epoch', string.format('%d', t[1] * 1000000 + t[2]))
end
redis.call('HINCRBY', cp, 'epoch', 1)
local v = redis.call('HMGET', cp, 'epoch', 'seq', 'created', 'id')
return {generation, v[1], v[2], v[3], v[4]}
