-- One command with more words than Lua hands over at once, in pieces; its answers are counts, and are added up.
-- ARGV[2]: how many words every piece begins with; ARGV[3]: how many follow at most.
local head, most, total = tonumber(ARGV[2]), tonumber(ARGV[3]), 0
for from = 4 + head, #ARGV, most do
    local words = {}
    for i = 4, 3 + head do
        words[#words + 1] = ARGV[i]
    end
    for i = from, math.min(from + most - 1, #ARGV) do
        words[#words + 1] = ARGV[i]
    end
    total = total + redis.call(unpack(words))
end
return total
