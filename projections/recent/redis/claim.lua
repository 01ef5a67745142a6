-- Takes a partition over. The first claim also names the checkpoint's birth: what was
-- written under another birth does not count. Epochs count from there, so that a Redis
-- that was emptied gives none a second time, and a runner of before is fenced.
-- The store, too, is named by the first claim.
-- KEYS: generation pointer, name of the store. ARGV: root, partition, a new name, the
-- generation that must be the one ('' any).
local generation = redis.call('GET', KEYS[1]) or '1'
if ARGV[4] ~= '' and ARGV[4] ~= generation then
  return {}
end
local cp = ARGV[1] .. generation .. ':cp:' .. ARGV[2]
if redis.call('EXISTS', cp) == 0 then
  local t = redis.call('TIME')
  redis.call('HSET', cp, 'seq', '0', 'created', '', 'id', '', 'birth', t[1] .. '.' .. t[2], 'epoch', string.format('%d', t[1] * 1000000 + t[2]))
end
redis.call('SET', KEYS[2], ARGV[3], 'NX')
redis.call('HINCRBY', cp, 'epoch', 1)
local v = redis.call('HMGET', cp, 'epoch', 'seq', 'created', 'id')
return {generation, v[1], v[2], v[3], v[4], redis.call('GET', KEYS[2])}
