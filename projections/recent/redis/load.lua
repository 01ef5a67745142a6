-- Reads one session and the checkpoint in one step.
-- KEYS: generation pointer. ARGV: root, partition, session, shown.
-- Answers {seq} where the session is not held, else {seq, applied, whole, head,
-- number of turns, turns from the newest back}.
local base = ARGV[1] .. (redis.call('GET', KEYS[1]) or '1') .. ':'
local cp = redis.call('HMGET', base .. 'cp:' .. ARGV[2], 'seq', 'birth')
if not cp[1] then
  return {'0'}
end
local turns = base .. 't:' .. ARGV[3]
local h = redis.call('HMGET', base .. 'h:' .. ARGV[3], 'applied', 'whole', 'head', 'turns', 'birth')
if not h[3] or h[5] ~= cp[2] then
  return {cp[1]}
end
local count = redis.call('ZCARD', turns)
if count ~= tonumber(h[4]) then
  return {cp[1]}
end
local out = {cp[1], h[1], h[2], h[3], tostring(count)}
local want = tonumber(ARGV[4])
if want < 0 then
  want = count
end
local from = 0
while want > 0 and from < count do
  local part = redis.call('ZREVRANGE', turns, from, from + want - 1)
  from = from + want
  for _, record in ipairs(part) do
    out[#out + 1] = record
    if string.sub(record, 2, 2) == 'f' then
      want = want - 1
    end
  end
end
return out
