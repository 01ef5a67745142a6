-- Keeps dead letters, forgets their sessions and moves the checkpoint past them.
-- KEYS: checkpoint, generation pointer. ARGV: generation, from seq, epoch, to seq,
-- created, event id, base of keys, most dead letters; then session and letter by turns.
local cp = redis.call('HMGET', KEYS[1], 'seq', 'epoch')
if (redis.call('GET', KEYS[2]) or '1') ~= ARGV[1] or cp[2] ~= ARGV[3] or (cp[1] ~= ARGV[2] and cp[1] ~= '0') then
  return 0
end
local base = ARGV[7]
for i = 9, #ARGV, 2 do
  redis.call('UNLINK', base .. 'h:' .. ARGV[i], base .. 't:' .. ARGV[i])
  redis.call('RPUSH', base .. 'dead', ARGV[i + 1])
end
redis.call('LTRIM', base .. 'dead', -tonumber(ARGV[8]), -1)
redis.call('HSET', KEYS[1], 'seq', ARGV[4], 'created', ARGV[5], 'id', ARGV[6])
return 1
