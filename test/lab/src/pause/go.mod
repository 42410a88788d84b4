module quorate.lab/pause

go 1.26.0
