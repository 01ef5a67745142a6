-- Holds a session as the log had it up to a sequence; answers 0 and does nothing where the
-- view has not come that far, or has applied or parked more of the session.
-- KEYS: generation pointer. ARGV: root, partition, up to seq, session, seq of the
-- session's last event, whole, head, expires in ms ('' for all three: it is over), then
-- place and record by turns.
local base = ARGV[1] .. (redis.call('GET', KEYS[1]) or '1') .. ':'
local partition, upto, session = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local cp = redis.call('HMGET', base .. 'cp:' .. partition, 'seq', 'birth')
if not cp[1] or tonumber(cp[1]) < upto then
  return 0
end
local hash, turns = base .. 'h:' .. session, base .. 't:' .. session
local held = redis.call('HMGET', hash, 'applied', 'birth', 'left')
if held[2] == cp[2] and (tonumber(held[1] or '0') > upto or tonumber(held[3] or '0') > upto) then
  return 0
end
redis.call('UNLINK', hash, turns)
if ARGV[8] ~= '' and session ~= '' then
  for i = 9, #ARGV, 2 do
    redis.call('ZADD', turns, ARGV[i], ARGV[i + 1])
  end
  redis.call('HSET', hash, 'applied', ARGV[5], 'whole', ARGV[6], 'head', ARGV[7], 'turns', redis.call('ZCARD', turns), 'birth', cp[2])
  redis.call('PEXPIREAT', hash, ARGV[8])
  redis.call('PEXPIREAT', turns, ARGV[8])
end
return 1
