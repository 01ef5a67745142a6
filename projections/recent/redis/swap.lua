-- Serves the generation that was filled, if no partition of the served one is further;
-- else it fences the runners of the served one.
-- KEYS: generation pointer, pointer of the one being filled.
-- ARGV: number of the one being filled, root, '1' to swap anyway, then partitions.
-- Answers 1 swapped, 0 behind, -1 not ours any more.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return -1
end
local old, new = ARGV[2] .. (redis.call('GET', KEYS[1]) or '1') .. ':cp:', ARGV[2] .. ARGV[1] .. ':cp:'
local behind = false
for i = 4, #ARGV do
  local was, is = redis.call('HGET', old .. ARGV[i], 'seq'), redis.call('HGET', new .. ARGV[i], 'seq')
  behind = behind or ARGV[3] ~= '1' and tonumber(is or '0') < tonumber(was or '0')
end
for i = 4, #ARGV do
  local was = redis.call('HGET', old .. ARGV[i], 'epoch')
  if was then
    redis.call('HINCRBY', old .. ARGV[i], 'epoch', 1)
  end
  if not behind then
    local is = redis.call('HGET', new .. ARGV[i], 'epoch')
    if is then
      redis.call('HSET', new .. ARGV[i], 'epoch', string.format('%d', math.max(tonumber(was or '0'), tonumber(is)) + 1))
    end
  end
end
if behind then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
