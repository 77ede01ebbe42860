/* What the parts of the game know of each other. */
#ifndef GAME_H
#define GAME_H
#include "art.h"
#include "levels.h"
#include "ram.h"

#define PPU_ADDR (*(volatile u8 *)0x2006)
#define PPU_DATA (*(volatile u8 *)0x2007)
#define GROUND_Y 208

/* level.c */
extern u8 pole_column, door_column;
void load_level(void);      /* the map of `area` from its beginning, with the screen off */
void follow_player(void);   /* move the camera and bring in what comes into sight */
void set_block(u8 page, u8 x, u8 y, u8 block); /* at pixel position, in memory and on the screen */
void erase_block(u8 page, u8 x, u8 y);         /* on the screen only */

/* player.c */
void place_player(void);
void control_player(u8 buttons);
void move_player(void);
void draw_player(void);
void bounce_player(void);
void kill_player(void);
void hop_dying(void);
void slide_down_pole(void);
void move_bump(void);

/* enemies.c */
void clear_enemies(void);
void spawn_enemies(u8 column); /* all that stand up to this column */
void place_flag(void);
void move_enemies(void);
void draw_enemies(void);
void kill_above(u8 page, u8 x, u8 y); /* what stands on a block that was hit from below */

/* text.c */
void put_text(u16 where, const char *text);
void clear_screen(u8 theme);
void draw_status_labels(void);
void draw_logo(void);
void set_black(void);
void add_score(u8 digit, u8 amount); /* 5: tens, 4: hundreds, 3: thousands */
void add_coin(void);

/* sound.c */
void sound_jump(void);
void sound_coin(void);
void sound_stomp(void);
void sound_bump(void);
void sound_die(void);
void sound_flag(void);
void start_music(void);
void stop_music(void);
void play_sound(void); /* once a frame */
#endif
