-- Applies a batch, or a part of one, if the checkpoint is where the batch begins.
-- KEYS: checkpoint, generation pointer.
-- ARGV: generation, from seq, epoch, to seq ('' where more follows), created, event
-- id, base of keys, most turns; then per session: id, number of operations, head
-- ('' where none), expires in ms; then per operation: name, seq, first, place, turn
-- id or ids, data. A record is: version, 'p'ending or 'f'inalized, 16 bytes of turn
-- id, the rest. A sequence is never made a number where it is written.
local cp = redis.call('HMGET', KEYS[1], 'seq', 'epoch', 'birth')
if (redis.call('GET', KEYS[2]) or '1') ~= ARGV[1] or cp[2] ~= ARGV[3] or (cp[1] ~= ARGV[2] and cp[1] ~= '0') then
  return 0
end
local base, most, birth = ARGV[7], tonumber(ARGV[8]), cp[3]

local function id_of(record) return string.sub(record, 3, 18) end

-- The record of a turn at a place, if it is there in that state.
local function at(turns, place, id, state)
  for _, record in ipairs(redis.call('ZRANGEBYSCORE', turns, place, place)) do
    if id_of(record) == id and string.sub(record, 2, 2) == state then
      return record
    end
  end
end

-- Takes out every record of the turns whose ids stand one after the other in ids.
local function remove(turns, ids)
  local gone = {}
  for i = 1, #ids, 16 do
    gone[string.sub(ids, i, i + 15)] = true
  end
  for _, record in ipairs(redis.call('ZRANGE', turns, 0, -1)) do
    if gone[id_of(record)] then
      redis.call('ZREM', turns, record)
    end
  end
end

-- Drops the oldest records beyond the limit, and reports whether there were any.
local function trim(turns)
  local over = redis.call('ZCARD', turns) - most
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', turns, 0, over - 1)
  end
  return over > 0
end

local i = 9
while ARGV[i] do
  local session, operations, head, expires = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local hash, turns = base .. 'h:' .. session, base .. 't:' .. session
  local held = redis.call('HMGET', hash, 'applied', 'whole', 'birth')
  local applied, whole = held[1], held[2]
  if applied and held[3] ~= birth then
    applied = false
  end
  local marked, changed = false, false
  i = i + 4
  for _ = 1, operations do
    local op, seq, place, id, data = ARGV[i], ARGV[i + 1], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
    if applied and tonumber(seq) <= tonumber(applied) then -- luacheck: ignore: seen before
    elseif op == 'mark' then
      if applied then
        applied, marked = seq, true
      end
    elseif op == 'park' then
      -- The session is the log's to answer for. The mark is for a restore that was folded before (restore.lua).
      redis.call('UNLINK', hash, turns)
      redis.call('HSET', hash, 'left', seq, 'birth', birth)
      redis.call('PEXPIRE', hash, 86400000)
      applied, marked, changed = false, false, false
    elseif op == 'drop' then
      redis.call('UNLINK', hash, turns)
      applied, marked, changed = false, false, false
    else
      if not applied then
        redis.call('UNLINK', hash, turns)
        whole = ARGV[i + 2]
      end
      applied, changed = seq, true
      if op == 'start' then
        redis.call('ZADD', turns, place, data)
        if trim(turns) then
          whole = '0'
        end
      elseif op == 'answer' then
        local record = at(turns, place, id, 'p')
        if record then
          redis.call('ZREM', turns, record)
          redis.call('ZADD', turns, place, string.sub(record, 1, 1) .. 'f' .. string.sub(record, 3) .. data)
        end
      elseif op == 'extend' then
        local record = at(turns, place, id, 'p') or at(turns, place, id, 'f')
        if record then
          redis.call('ZREM', turns, record)
          redis.call('ZADD', turns, place, record .. data)
        end
      elseif op == 'swap' then
        local record = at(turns, place, id, 'p') or at(turns, place, id, 'f')
        local first = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')
        if record then
          redis.call('ZREM', turns, record)
        end
        -- A turn that is not held is older than all that are, or its other events have left the log.
        if record or whole == '1' or (first[2] and tonumber(first[2]) < tonumber(place)) then
          redis.call('ZADD', turns, place, data)
          if trim(turns) then
            whole = '0'
          end
        end
        if id ~= id_of(data) then -- a correction
          whole = '0'
        end
      elseif op == 'redact' then
        remove(turns, id)
        whole = '0'
      elseif op == 'erase' then
        redis.call('UNLINK', turns)
      end
    end
    i = i + 6
  end
  if changed then
    redis.call('HSET', hash, 'applied', applied, 'whole', whole, 'head', head, 'turns', redis.call('ZCARD', turns), 'birth', birth)
    redis.call('PEXPIREAT', hash, expires)
    redis.call('PEXPIREAT', turns, expires)
  elseif marked then
    redis.call('HSET', hash, 'applied', applied)
  end
end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'seq', ARGV[4], 'created', ARGV[5], 'id', ARGV[6])
end
return 1
